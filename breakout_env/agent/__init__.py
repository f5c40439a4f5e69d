"""Trained agents: weights as a file, evaluation by named protocols, play and averaging."""

from .agent import Agent, load_agent, save_agent

__all__ = ['Agent', 'load_agent', 'save_agent']
