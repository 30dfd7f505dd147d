"""Datasets, loaders and augmentation. Runs in a rank."""
