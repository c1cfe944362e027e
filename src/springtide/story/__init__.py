"""Why a node or a job is as it is: the story in plain words, with times and what comes next.

Pure. The API gathers what is known into a case and has its story told; whoever tells job owners
something uses the short form, so that all say the same.
"""

from springtide.story.case import Due, Held, JobCase, NodeCase, Rest, Short, Wait
from springtide.story.ids import JOB, POLLED_JOB, known_as
from springtide.story.job import is_for, job_story, nodes_asked
from springtide.story.node import node_story
from springtide.story.telling import (
    MOST_TOLD,
    SHORT,
    Story,
    in_short,
    jobs_of,
    loss,
    not_yet_told,
    setback,
)
from springtide.story.underway import holder
from springtide.story.voice import Voice, voice_of

__all__ = [
    "JOB",
    "MOST_TOLD",
    "POLLED_JOB",
    "SHORT",
    "Due",
    "Held",
    "JobCase",
    "NodeCase",
    "Rest",
    "Short",
    "Story",
    "Voice",
    "Wait",
    "holder",
    "in_short",
    "is_for",
    "job_story",
    "jobs_of",
    "known_as",
    "loss",
    "node_story",
    "nodes_asked",
    "not_yet_told",
    "setback",
    "voice_of",
]
