"""Plans applications in processes of their own, because to plan one is to run its file."""
