"""Plans applications in processes of their own, because planning one runs its file."""
