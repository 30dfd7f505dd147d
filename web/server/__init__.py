"""The pages over HTTP: who may see them, what keeps them fresh, what may be done from them."""
