"""Any stretch of a run again, from its evidence and a checkpoint, compared link by link."""
