"""How a container is made, reached and cleared away."""
