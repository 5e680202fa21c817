"""Publish the tables first, then let everything else read which there are."""

from tests.later_release import second, work

work.main(second.NUMBER)
