"""Lost messages, made again from their producer."""
