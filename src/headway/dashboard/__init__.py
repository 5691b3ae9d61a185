"""The pages: what runs, what waits and why, and the forms that change it."""
