"""Kafka's node settings for access control, as `declare.rows` reads them.

Below the line `! …` only the default is accepted: a node that is set to protect something and
does not must not start.
"""

ACCESS_CONTROL = """\
# Clients and Java's libraries alone use it.
ssl.endpoint.identification.algorithm | string | https
ssl.keymanager.algorithm | string | SunX509
ssl.provider | string | null
ssl.secure.random.implementation | string | null
ssl.trustmanager.algorithm | string | PKIX
# Kerberos is not served, and clients alone log in again.
sasl.kerberos.kinit.cmd | string | /usr/bin/kinit
sasl.kerberos.min.time.before.relogin | long | 60000
sasl.kerberos.principal.to.local.rules | list | DEFAULT
sasl.kerberos.service.name | string | null
sasl.kerberos.ticket.renew.jitter | double | 0.05
sasl.kerberos.ticket.renew.window.factor | double | 0.8
sasl.login.refresh.buffer.seconds | short | 300
sasl.login.refresh.min.period.seconds | short | 60
sasl.login.refresh.window.factor | double | 0.8
sasl.login.refresh.window.jitter | double | 0.05
! This broker does not have this part of Kafka's security.
delegation.token.expiry.check.interval.ms | long | 3600000 | 1..
delegation.token.expiry.time.ms | long | 86400000 | 1..
delegation.token.max.lifetime.ms | long | 604800000 | 1..
delegation.token.secret.key | password | null
principal.builder.class | class | org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
sasl.client.callback.handler.class | class | null
sasl.login.callback.handler.class | class | null
sasl.login.class | class | null
sasl.login.connect.timeout.ms | int | null
sasl.login.read.timeout.ms | int | null
sasl.login.retry.backoff.max.ms | long | 10000
sasl.login.retry.backoff.ms | long | 100
sasl.mechanism.controller.protocol | string | GSSAPI
sasl.mechanism.inter.broker.protocol | string | GSSAPI
sasl.oauthbearer.assertion.algorithm | string | RS256
sasl.oauthbearer.assertion.claim.aud | string | null
sasl.oauthbearer.assertion.claim.exp.seconds | int | 300 | 0..86400
sasl.oauthbearer.assertion.claim.iss | string | null
sasl.oauthbearer.assertion.claim.jti.include | boolean | false
sasl.oauthbearer.assertion.claim.nbf.seconds | int | 60 | 0..3600
sasl.oauthbearer.assertion.claim.sub | string | null
sasl.oauthbearer.assertion.file | string | null
sasl.oauthbearer.assertion.private.key.file | string | null
sasl.oauthbearer.assertion.private.key.passphrase | password | null
sasl.oauthbearer.assertion.template.file | string | null
sasl.oauthbearer.client.credentials.client.id | string | null
sasl.oauthbearer.client.credentials.client.secret | password | null
sasl.oauthbearer.jwt.retriever.class | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever
sasl.oauthbearer.jwt.validator.class | class | org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator
sasl.oauthbearer.scope | string | null
sasl.oauthbearer.token.endpoint.url | string | null
security.providers | string | null
ssl.engine.factory.class | class | null
"""
