"""The fork server and the ranks that it forks."""
