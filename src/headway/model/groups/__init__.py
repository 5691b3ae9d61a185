"""Groups, stages and plans."""
