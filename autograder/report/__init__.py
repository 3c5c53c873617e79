"""A class as one HTML page, made from the JSON of a grading run."""
