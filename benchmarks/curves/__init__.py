"""How cost grows: curves over one quantity each, with the model that explains them."""
