"""Settings of OAUTHBEARER (KIP-768): by which keys and claims a listener checks the tokens of an authorization server.
`broker.BrokerSettings` lists them."""

from typing import Final

OAUTHBEARER: Final = "OAUTHBEARER"
JWKS_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
JWKS_REFRESH_MS: Final = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
JWKS_RETRY_BACKOFF_MS: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"
JWKS_RETRY_BACKOFF_MS_MAX: Final = "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
EXPECTED_ISSUER: Final = "sasl.oauthbearer.expected.issuer"
EXPECTED_AUDIENCE: Final = "sasl.oauthbearer.expected.audience"
CLOCK_SKEW_SECONDS: Final = "sasl.oauthbearer.clock.skew.seconds"
SUB_CLAIM_NAME: Final = "sasl.oauthbearer.sub.claim.name"

OAUTH: Final = """\
= Has its effect, each as its last cell says.
sasl.oauthbearer.clock.skew.seconds | int | 30 | 0.. | Seconds by which the clock of the authorization server may \
differ: a token is taken that much before it becomes valid, and that much after it has expired.
sasl.oauthbearer.expected.audience | list | | Audiences of which a token must name one (claim aud). Empty: a token \
for any service of the authorization server is taken.
sasl.oauthbearer.expected.issuer | string | null | Issuer that a token must name (claim iss). Not set: any.
sasl.oauthbearer.jwks.endpoint.refresh.ms | long | 3600000 | 1000.. | Time after which the keys of \
sasl.oauthbearer.jwks.endpoint.url are read again. A token with an unknown key has them read earlier.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms | long | 10000 | 1.. | Longest wait between two reads of keys \
that brought nothing new.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms | long | 100 | 1.. | Wait before the second read of keys where the \
first one failed, or brought nothing new for a token with an unknown key; it doubles each time.
sasl.oauthbearer.jwks.endpoint.url | string | null | Address of the keys that sign tokens, a JSON Web Key Set: \
https://HOST/PATH, http:// on this machine alone, or file:///PATH. A listener with OAUTHBEARER needs it.
sasl.oauthbearer.scope.claim.name | string | scope | Name of the claim with a token's scope. Scopes decide nothing \
here, as in Kafka.
sasl.oauthbearer.sub.claim.name | string | sub | Name of the claim that has the user's name.
sasl.server.callback.handler.class | class | null | \
org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler \
org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerValidatorCallbackHandler | Kafka's class that checks \
tokens, accepted for OAUTHBEARER: this broker checks them as it does, with or without this setting.
"""
