"""The measurements behind what README claims; each module prints its own, ``make bench`` runs them all."""
