"""Pictures: what to draw as plain records, and drawing them as SVG, PNG and terminal text."""
