"""Why a node or a job is as it is: the story in plain words, with times and what comes next.

Pure. The API gathers what is known into a case and has its story told; whoever tells job owners
something uses the short form, so that all say the same.
"""

from springtide.story.case import Due, Held, JobCase, NodeCase, Rest
from springtide.story.job import is_for, job_story, nodes_asked
from springtide.story.node import node_story
from springtide.story.telling import MOST_TOLD, SHORT, Story, in_short, loss, not_yet_told, setback
from springtide.story.underway import holder

__all__ = [
    "MOST_TOLD",
    "SHORT",
    "Due",
    "Held",
    "JobCase",
    "NodeCase",
    "Rest",
    "Story",
    "holder",
    "in_short",
    "is_for",
    "job_story",
    "loss",
    "node_story",
    "nodes_asked",
    "not_yet_told",
    "setback",
]
