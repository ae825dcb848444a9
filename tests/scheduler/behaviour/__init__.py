"""What a scheduler does with pods, seen from outside: objects in, bindings, conditions and events out."""
