"""What users import: Application, streams, Task, windows, monoids."""
