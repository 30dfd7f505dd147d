"""What the reading commands show, as documents."""
