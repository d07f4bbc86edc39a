"""Own the main job: one small training run, started in each way that a user could start it, and the times side by side.

It knows prejit by its public names only, as a user does; nothing else in prejit imports it.
Invariant: every way runs the same program on the same text in a fresh process, and must give the same losses.
"""
