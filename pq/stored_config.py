"""What is in force for a topic, by what it is set to and what its node is."""

import logging

from pqbroker.conf.broker import BrokerSettings
from pqbroker.conf.defaults import stored_config, wrong_texts
from pqbroker.conf.topic import TopicConfig
from pqbroker.storage.scheme import Topic

_log = logging.getLogger(__name__)


def config_of(topic: Topic, settings: BrokerSettings) -> TopicConfig:
    """The config in force; what the topic is set to and cannot be is logged with its cure."""
    for cause in wrong_texts(topic.config).values():
        _log.error(
            "topic %s: %s; its default is in force, and retention deletes nothing of the topic, until it is set anew "
            "or deleted (kafka-configs --alter), or the version that took it serves it",
            topic.name,
            cause,
        )
    return stored_config(topic.config, settings)
