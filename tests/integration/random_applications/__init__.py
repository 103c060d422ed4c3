"""Random applications beside a model of the documented semantics in plain Python.

A *recipe* (`recipe`) is drawn from a seed (`drawing`): sources with their files, steps, sinks, figures of the
configuration, and where it crashes. `program` writes it as the text of an application, which is what runs;
`model` computes from the recipe what the guide promises that each sink holds, without Drivetrain; `checking`
compares. A recipe that fails is made smaller (`shrinking`) for as long as it fails.
"""
