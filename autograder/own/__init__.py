"""A course folder of a teacher's own, beside the clone or an installed wheel, and its upgrades."""
