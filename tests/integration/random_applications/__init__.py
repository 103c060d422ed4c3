"""Random applications beside a model of the documented semantics in plain Python.

A *recipe* (`recipe`) is drawn from a seed (`drawing`): sources with their files, steps, sinks, figures of the
configuration, and where it crashes. `program` writes it as the text of an application, which then runs;
`model` computes from the recipe, without Drivetrain, what each sink must hold according to the guide;
`checking` compares. A recipe that fails is made smaller (`shrinking`) for as long as it fails.
"""
