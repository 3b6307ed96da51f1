"""weftline: plan how one neural network runs on several unequal devices, and prove how good the plan is."""

__version__ = "0.1.0"
