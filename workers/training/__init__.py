"""The training of one run: loop, loss, schedule, evaluation. Runs in a rank."""
