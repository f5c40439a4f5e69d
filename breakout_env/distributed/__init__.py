"""
One run on many processes or machines, by DI-engine's task engine; ``entry/breakout_dqn_dist.py`` puts it together.

The learner orders pieces of play, collectors play and send them, an evaluator plays what it is asked to. Messages may
be lost, come twice, or late (DI-engine's message queues promise nothing): each order has a number, the learner repeats
all that it waits for once a second, a collector keeps a piece until its order is gone from that list, and a piece
counts if its order is still open, which it is once.
"""
