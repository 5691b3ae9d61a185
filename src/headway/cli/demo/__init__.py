"""The demo: tasks, scenes and the stage that runs them."""
