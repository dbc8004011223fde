"""From the words of the command line to an experiment: composition by Hydra, and its errors."""
