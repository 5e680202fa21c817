"""Publish the tables first, then let everything else read which there are."""

from tests.later_release import second

second.publish_it()

from tests.later_release import work  # noqa: E402

work.main(second.NUMBER)
