"""What the readers of research formats share.

In: a path or a decoded value. Out: checked values. Simplified: see README.md.
"""
