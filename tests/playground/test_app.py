"""Who is answered, and how: token, Host, Origin, sizes, texts that are code."""

import asyncio
import json

import pytest
from starlette.testclient import TestClient

from bert_tf.playground import app
from bert_tf.playground import guard
from bert_tf.playground import page
from bert_tf.playground import requests
from bert_tf.playground import server

PORT = 8123
TOKEN = "Vb1nM2hT5yQ8sZ0aK3dF6gJ9lP4oR7uWxEcYiNvBtXs"
ORIGIN = f"http://127.0.0.1:{PORT}"
HARMFUL = "</script><img src=x onerror=alert(1)>"
SHOWN = page.Page("<style>p{}</style><p>Hello</p><script>1 < 2</script>")


class Stub:
    """Answers as a `PlaygroundModel`, of whom the server knows no more."""

    def __init__(self):
        self.asked = []

    def _answer(self, values):
        self.asked.append(values)
        requests.check_names(values, ("texts",))
        if values.get("texts") == ["fail"]:
            raise KeyError("a secret text")
        if values.get("texts") == ["nan"]:
            return {"number": float("nan")}
        return {"texts": requests.texts_of(values, 0, 3)}

    read_tokens = fill_mask = attention = predict = _answer


@pytest.fixture
def stub():
    return Stub()


@pytest.fixture
def client(stub):
    return TestClient(
        app.make(stub, SHOWN, TOKEN, PORT),
        base_url=ORIGIN,
        headers={"origin": ORIGIN},
        raise_server_exceptions=True,
    )


def post(client, name="tokens", token=TOKEN, **others):
    others.setdefault("json", {"texts": ["a"]})
    return client.post(f"/{token}/api/{name}", **others)


def test_the_page_and_what_it_may_do(client):
    response = client.get(f"/{TOKEN}/")
    assert response.status_code == 200
    assert response.text == SHOWN.text
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    # Of `1 < 2`, by openssl dgst -sha256 -binary | base64.
    assert (
        "script-src 'sha256-T8Xibs7zV8KTQdRXjpKJTlizX17SudRlddrZKaeFg9E='"
        in policy
    )
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert response.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "name", ["tokens", "fill_mask", "attention", "predict"]
)
def test_questions_are_answered(client, stub, name):
    response = post(client, name)
    assert response.status_code == 200
    assert response.json() == {"texts": ["a"]}
    assert stub.asked == [{"texts": ["a"]}]
    # What is no page must not become one.
    policy = response.headers["content-security-policy"]
    assert policy == "default-src 'none'; frame-ancestors 'none'"


def test_tokens_are_long_and_never_the_same():
    tokens = {server.new_token() for _ in range(100)}
    assert len(tokens) == 100
    assert min(map(len, tokens)) >= 43


@pytest.mark.parametrize(
    "token", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.swapcase(), "%C3%A9"]
)
def test_another_token_is_refused(client, stub, token):
    answers = [client.get(f"/{token}/"), post(client, token=token)]
    answers.append(client.get(f"/?token={token}"))
    answers.append(client.get("/favicon.ico"))
    for response in answers:
        assert response.status_code == 403
        assert response.text == "403 Forbidden"
        assert response.headers["x-content-type-options"] == "nosniff"
    assert stub.asked == []


@pytest.mark.parametrize("target", ["*", "x", f"{TOKEN}/", ""])
def test_a_target_that_is_no_path_is_refused(stub, target):
    sent = []

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": target,
        "headers": [(b"host", ORIGIN.removeprefix("http://").encode())],
    }
    asyncio.run(app.make(stub, SHOWN, TOKEN, PORT)(scope, None, send))
    assert [message.get("status") for message in sent] == [403, None]
    assert (
        guard.HEADERS.items()
        <= {
            name.decode(): value.decode() for name, value in sent[0]["headers"]
        }.items()
    )


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "127.0.0.1",
        "127.0.0.1:80",
        f"127.0.0.1:{PORT}.evil.example",
        f"127.0.0.1.:{PORT}",
        f"0.0.0.0:{PORT}",
        "",
    ],
)
def test_another_host_is_refused(client, stub, host):
    headers = {"host": host}
    assert client.get(f"/{TOKEN}/", headers=headers).status_code == 403
    assert post(client, headers=headers).status_code == 403
    assert stub.asked == []


def test_localhost_is_the_same_host(client):
    headers = {
        "host": f"localhost:{PORT}",
        "origin": f"http://localhost:{PORT}",
    }
    assert client.get(f"/{TOKEN}/", headers=headers).status_code == 200
    assert post(client, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "http://evil.example",
        f"https://127.0.0.1:{PORT}",
        "http://127.0.0.1",
        f"{ORIGIN}.evil.example",
        f"http://127.0.0.1:{PORT + 1}",
    ],
)
def test_another_origin_is_refused(client, stub, origin):
    headers = {"origin": origin}
    assert post(client, headers=headers).status_code == 403
    assert client.get(f"/{TOKEN}/", headers=headers).status_code == 403
    assert stub.asked == []


def test_a_url_without_its_last_slash_leads_to_the_page(client):
    response = client.get(f"/{TOKEN}", follow_redirects=False)
    assert response.status_code == 307
    # Below it the page's questions find the server.
    assert response.headers["location"] == f"/{TOKEN}/"
    assert client.get(f"/{TOKEN}").text == SHOWN.text
    headers = {"host": "evil.example"}
    assert client.get(f"/{TOKEN}", headers=headers).status_code == 403


def test_a_question_without_an_origin_is_refused(client, stub):
    del client.headers["origin"]
    assert post(client).status_code == 403
    assert client.get(f"/{TOKEN}/").status_code == 200
    assert stub.asked == []


@pytest.mark.parametrize(
    "path",
    [
        "api/other",
        "api/",
        "setup.py",
        "..%2f..%2fsetup.py",
        "../bert_tf/playground/page.py",
        "static/page.js",
        "//etc/passwd",
    ],
)
def test_no_file_is_served(client, path):
    assert client.get(f"/{TOKEN}/{path}").status_code in (403, 404)


def test_methods_are_as_they_must_be(client):
    assert client.get(f"/{TOKEN}/api/tokens").status_code == 405
    assert client.post(f"/{TOKEN}/", json={}).status_code == 405
    assert client.delete(f"/{TOKEN}/").status_code == 405


def test_large_requests_are_refused(client, stub):
    text = "a" * requests.MAX_BODY_BYTES
    assert post(client, json={"texts": [text]}).status_code == 413

    def parts():
        # As long as its first parts are read, it says nothing of its length.
        for _ in range(requests.MAX_BODY_BYTES // 1024 + 1):
            yield b" " * 1024

    headers = {"content-type": "application/json"}
    response = post(client, json=None, content=parts(), headers=headers)
    assert response.status_code == 413
    assert stub.asked == []
    text = "a" * (requests.MAX_CHARACTERS + 1)
    response = post(client, json={"texts": [text]})
    assert response.status_code == 400
    assert "10,000 characters" in response.json()["error"]
    response = post(client, json={"texts": ["a"] * 4})
    assert response.json() == {
        "error": "`texts` must be 0 to 3. Received: 4 texts."
    }


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"NaN1", b"[" * 50_000])
def test_what_is_no_json_is_refused(client, stub, body):
    headers = {"content-type": "application/json"}
    response = post(client, json=None, content=body, headers=headers)
    assert response.status_code == 400
    assert "error" in response.json()
    assert stub.asked == []


def test_another_type_is_refused(client, stub):
    # What a form of another page could send.
    for kind in ("text/plain", "application/x-www-form-urlencoded"):
        headers = {"content-type": kind}
        response = post(client, json=None, content=b"{}", headers=headers)
        assert response.status_code == 415
    assert stub.asked == []


def test_a_type_has_no_case(client):
    for kind in ("Application/JSON", "application/JSON ; charset=utf-8"):
        headers = {"content-type": kind}
        body = b'{"texts": ["a"]}'
        response = post(client, json=None, content=body, headers=headers)
        assert response.json() == {"texts": ["a"]}


def test_code_in_a_text_is_text(client):
    response = post(client, json={"texts": [HARMFUL]})
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.json() == {"texts": [HARMFUL]}
    # In a message, too.
    response = post(client, json={HARMFUL: 1})
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"


@pytest.mark.parametrize("text", ["fail", "nan"])
def test_what_fails_is_told_without_the_text(client, caplog, text):
    response = post(client, json={"texts": [text]})
    assert response.status_code == 500
    told = json.dumps(response.json())
    assert "secret" not in told
    assert "secret" not in caplog.text
    assert post(client).status_code == 200
