"""What `make bench` measures; a module for each subject, each with a `run()`."""
