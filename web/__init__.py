"""The pages: a static site beside the report, and the same pages served live."""
