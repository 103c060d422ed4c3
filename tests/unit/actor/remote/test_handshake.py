"""The handshake: who gets a session, and that both sides agree on which."""

from __future__ import annotations

from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivetrain.actor.path import ANY_INCARNATION, Address
from drivetrain.actor.remote.auth import NONCE_BYTES
from drivetrain.actor.remote.handshake import AcceptorHandshake, Agreement, DialerHandshake, LocalIdentity
from drivetrain.actor.remote.keys import Keys, SharedSecrets
from drivetrain.actor.remote.remote_errors import HandshakeError, ProtocolViolationError
from drivetrain.actor.remote.wire import Challenge, Hello, Proof, Refusal, Welcome, decode, encode

DIALER = Address("one", "10.0.0.1", 7, 111)
ACCEPTOR = Address("two", "10.0.0.2", 8, 222)
SECRET = "a secret of some length"
NEW = "another one, of more length"

Known: TypeAlias = "str | tuple[str, ...] | Named | None"


def dialer(
    *, secret: Known = SECRET, session: int = 0, target: Address = ACCEPTOR, limit: int = 1000
) -> DialerHandshake:
    place = Address(target.system, target.host, target.port, ANY_INCARNATION)
    return DialerHandshake(LocalIdentity(DIALER, keys(secret), limit), place, session, b"d" * NONCE_BYTES)


def acceptor(*, secret: Known = SECRET, session: int = 0, limit: int = 2000) -> AcceptorHandshake:
    return AcceptorHandshake(
        LocalIdentity(ACCEPTOR, keys(secret), limit), lambda _: session, b"a" * NONCE_BYTES
    )


def keys(secret: Known) -> Keys | None:
    if secret is None or isinstance(secret, str):
        return None if secret is None else SharedSecrets(secret)
    return secret if isinstance(secret, Named) else SharedSecrets(*secret)


class Named:
    """Keys for some names only."""

    def __init__(self, **keys: bytes) -> None:
        self._keys = keys

    def keys_for(self, peer: str) -> tuple[bytes, ...]:
        return (self._keys[peer],) if peer in self._keys else ()


def shake(one: DialerHandshake, other: AcceptorHandshake) -> tuple[Agreement, Agreement]:
    challenge = other.receive(one.begin()).frame
    assert challenge is not None
    proof = one.receive(challenge).frame
    assert proof is not None
    theirs = other.receive(proof)
    assert theirs.frame is not None
    ours = one.receive(theirs.frame).agreement
    assert ours is not None
    assert theirs.agreement is not None
    return ours, theirs.agreement


@pytest.mark.parametrize("secret", [SECRET, None])
def test_both_sides_agree_on_a_new_session(secret: str | None) -> None:
    ours, theirs = shake(dialer(secret=secret), acceptor(secret=secret))
    assert (ours.peer, theirs.peer) == (ACCEPTOR, DIALER)
    assert ours.session == theirs.session != 0
    assert not ours.is_resumed
    assert not theirs.is_resumed
    assert (ours.send_limit_bytes, ours.receive_limit_bytes) == (1000, 1000)
    assert (theirs.send_limit_bytes, theirs.receive_limit_bytes) == (1000, 2000)


@pytest.mark.parametrize(
    ("mine", "theirs", "is_resumed"), [(5, 5, True), (5, 6, False), (0, 5, False), (5, 0, False)]
)
def test_a_session_is_resumed_only_if_both_name_it(mine: int, theirs: int, is_resumed: bool) -> None:
    one, other = shake(dialer(session=mine), acceptor(session=theirs))
    assert one.is_resumed == other.is_resumed == is_resumed
    assert one.session == other.session
    assert (one.session == 5) == is_resumed


def test_the_seals_open_the_other_sides_frames_and_nothing_else() -> None:
    ours, theirs = shake(dialer(), acceptor())
    assert ours.seal is not None
    assert ours.opener is not None
    assert theirs.seal is not None
    assert theirs.opener is not None
    sealed = ours.seal.close(b"a frame")
    assert bytes(theirs.opener.open(sealed)) == b"a frame"
    again, _ = shake(
        dialer(), AcceptorHandshake(LocalIdentity(ACCEPTOR, keys(SECRET), 1), lambda _: 0, b"b" * NONCE_BYTES)
    )
    assert again.seal is not None
    for wrong in (
        sealed[:-1] + b"x",
        b"x" + sealed[1:],
        b"",
        theirs.seal.close(b"a frame"),
        again.seal.close(b"a frame"),
    ):
        with pytest.raises(ProtocolViolationError, match="sealed"):
            theirs.opener.open(wrong)


def test_another_secret_is_refused_by_the_acceptor_before_it_proves_anything() -> None:
    one, other = dialer(secret="a wrong secret, long"), acceptor()
    challenge = other.receive(one.begin()).frame
    assert challenge is not None
    assert isinstance(decode(challenge), Challenge)
    proof = one.receive(challenge).frame
    assert proof is not None
    with pytest.raises(HandshakeError, match="secrets differ") as caught:
        other.receive(proof)
    assert caught.value.reason == "secret"
    assert not caught.value.is_from_peer


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [((NEW, SECRET), SECRET), (SECRET, (NEW, SECRET)), (NEW, (SECRET, NEW)), ((NEW, SECRET), (SECRET, NEW))],
)
def test_a_new_secret_and_an_old_one_are_in_use_together(ours: Known, theirs: Known) -> None:
    one, other = shake(dialer(secret=ours), acceptor(secret=theirs))
    assert one.seal is not None
    assert other.opener is not None
    assert bytes(other.opener.open(one.seal.close(b"a frame"))) == b"a frame"


def test_two_secrets_do_not_open_to_a_third() -> None:
    with pytest.raises(HandshakeError, match="secrets differ"):
        shake(dialer(secret="a wrong secret, long"), acceptor(secret=(NEW, SECRET)))


def test_who_has_no_key_for_the_name_that_is_claimed_is_refused_before_it_is_challenged() -> None:
    other = acceptor(secret=Named(three=b"k" * 32))
    with pytest.raises(HandshakeError, match="has no key for the system one") as caught:
        other.receive(dialer().begin())
    assert caught.value.reason == "secret"


def test_a_key_for_one_name_does_not_prove_another() -> None:
    names = Named(one=b"1" * 32, three=b"3" * 32)
    with pytest.raises(HandshakeError, match="secrets differ"):
        shake(dialer(secret=Named(two=b"3" * 32)), acceptor(secret=names))


def test_a_dialer_refuses_an_acceptor_that_does_not_know_the_secret() -> None:
    one, other = dialer(), acceptor()
    challenge = other.receive(one.begin()).frame
    assert challenge is not None
    one.receive(challenge)
    with pytest.raises(HandshakeError, match="secrets differ"):
        one.receive(encode(Welcome(bytes(32))))


def test_a_proof_cannot_be_sent_back() -> None:
    one, other = dialer(), acceptor()
    challenge = other.receive(one.begin()).frame
    assert challenge is not None
    proof = one.receive(challenge).frame
    assert proof is not None
    reflected = decode(proof)
    assert isinstance(reflected, Proof)
    with pytest.raises(HandshakeError, match="secrets differ"):
        one.receive(encode(Welcome(reflected.proofs[0])))


@pytest.mark.parametrize(("ours", "theirs"), [(SECRET, None), (None, SECRET)])
def test_a_secret_on_one_side_only_is_refused(ours: str | None, theirs: str | None) -> None:
    with pytest.raises(HandshakeError, match="has none"):
        acceptor(secret=theirs).receive(dialer(secret=ours).begin())
    challenge = encode(Challenge(str(ACCEPTOR), bytes(32), 0, 1000, theirs is not None))
    with pytest.raises(HandshakeError, match="has none"):
        dialer(secret=ours).receive(challenge)


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(1, 255))
def test_a_greeting_changed_on_the_way_never_leads_to_a_session(place: int, change: int) -> None:
    one, other = dialer(), acceptor()
    hello = bytearray(one.begin())
    hello[place % len(hello)] ^= change

    def go_on() -> None:
        challenge = other.receive(bytes(hello)).frame
        assert challenge is not None
        proof = one.receive(challenge).frame
        assert proof is not None
        other.receive(proof)

    with pytest.raises(HandshakeError):
        go_on()


def test_another_system_at_the_address_is_refused_by_either_side() -> None:
    elsewhere = Address("three", ACCEPTOR.host, ACCEPTOR.port, 1)
    with pytest.raises(HandshakeError, match="is wanted, but this is") as caught:
        acceptor().receive(dialer(target=elsewhere).begin())
    assert caught.value.reason == "target"
    with pytest.raises(HandshakeError, match="answered where"):
        dialer(target=elsewhere).receive(encode(Challenge(str(ACCEPTOR), bytes(32), 0, 1000, True)))


def test_the_acceptors_incarnation_may_be_any() -> None:
    ours, _ = shake(dialer(target=Address("two", "10.0.0.2", 8, 999)), acceptor())
    assert ours.peer.incarnation == 222


def test_another_version_is_refused() -> None:
    hello = Hello(99, str(DIALER), str(ACCEPTOR), bytes(32), 0, 1000, True)
    with pytest.raises(HandshakeError, match="version 99 meets"):
        acceptor().receive(encode(hello))


def test_a_refusal_says_why_and_that_it_came_from_the_peer() -> None:
    with pytest.raises(HandshakeError, match="an earlier life") as caught:
        dialer().receive(encode(Refusal("stale", "an earlier life")))
    assert caught.value.is_from_peer
    assert caught.value.reason == "stale"


def test_a_refusal_cannot_write_lines_of_its_own_into_our_log() -> None:
    with pytest.raises(HandshakeError) as caught:
        dialer().receive(encode(Refusal("x", "gone\nCRITICAL all is lost\x1b[31m")))
    assert "\n" not in caught.value.what
    assert "\x1b" not in caught.value.what


def test_frames_out_of_order_are_refused_and_nothing_is_taken_afterwards() -> None:
    other = acceptor()
    with pytest.raises(HandshakeError, match="where another was due"):
        other.receive(encode(Proof((bytes(32),))))
    with pytest.raises(HandshakeError, match="where another was due"):
        other.receive(dialer().begin())


@given(st.binary(max_size=60))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(HandshakeError):
        acceptor().receive(noise)
    with pytest.raises(HandshakeError):
        dialer().receive(noise)
