"""The places and the lettering of a plan's picture, for SVG files and for the console."""
