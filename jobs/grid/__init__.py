"""The grid compiler: from a YAML file to cells and runs. Only submission and catalogues need it."""
