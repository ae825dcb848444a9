"""What a scheduler does with pods, told from outside: objects in, bindings, conditions and events out."""
