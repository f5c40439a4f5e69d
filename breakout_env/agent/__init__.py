"""Trained agents: weights as a file, evaluation by named protocols, play, averaging and export."""

from .agent import Agent, load_agent, save_agent

__all__ = ['Agent', 'load_agent', 'save_agent']
