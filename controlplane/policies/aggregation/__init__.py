"""How the updates of an iteration become one: names, weights and local steps, as pure maths."""
