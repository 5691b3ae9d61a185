"""Opens, backs up, restores and promotes databases."""
