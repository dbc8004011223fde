"""Stands in for scikit-learn in processes that only want its digits (see `datasets`)."""
