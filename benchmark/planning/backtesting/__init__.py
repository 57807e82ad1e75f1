"""The model of a step against everything published: fitting, errors, what was left out."""
