"""The workspace on disk: paths, stored grids, allocations, journals, lineage and markers."""
