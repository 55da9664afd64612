"""Formulas that only documents ask for, the quiz and the glossary."""
