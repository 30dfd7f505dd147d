"""The pass over a workspace: observe, reconcile, start what is due; and the loops around it."""
