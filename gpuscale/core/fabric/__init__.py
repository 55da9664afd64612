"""Network design: switches, links and cables of a fabric, what they cost, what a failure takes."""
