#!/usr/bin/env python3
"""`tealight serve` as the official `openai` client sees it, in TAP; skipped where the package is not installed.
usage: check_openai.py TEALIGHT [MODEL]"""
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import tap  # noqa: E402
from serve_lib import Server  # noqa: E402

try:
    import openai
except ImportError:
    print("1..0 # SKIP the openai package is not installed")
    sys.exit(0)

MESSAGES = [{"role": "system", "content": "Answer briefly."}, {"role": "user", "content": "Say hello."}]
GREEDY = {"temperature": 0, "max_tokens": 24}


def check_models(c: openai.OpenAI, name: str) -> None:
    page = c.models.list()
    assert [m.id for m in page.data] == [name] and page.data[0].object == "model"
    assert c.models.retrieve(name).id == name


def check_chat(c: openai.OpenAI, name: str) -> None:
    r = c.chat.completions.create(model=name, messages=MESSAGES, **GREEDY)
    m = r.choices[0].message
    assert r.id.startswith("chatcmpl-") and r.object == "chat.completion" and r.model == name and r.created > 1e9
    assert m.role == "assistant" and m.content and m.tool_calls is None and m.refusal is None
    assert r.choices[0].finish_reason in ("stop", "length") and r.choices[0].logprobs is None
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert r._request_id


def check_chat_stream(c: openai.OpenAI, name: str) -> None:
    whole = c.chat.completions.create(model=name, messages=MESSAGES, **GREEDY)
    chunks = list(c.chat.completions.create(model=name, messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **GREEDY))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(k.choices[0].delta.content or "" for k in chunks[:-1]) == whole.choices[0].message.content
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(k.object == "chat.completion.chunk" and k.id == chunks[0].id for k in chunks)
    limited = c.chat.completions.create(model=name, messages=MESSAGES, temperature=0, max_completion_tokens=3)
    assert limited.usage.completion_tokens <= 3


def check_logprobs(c: openai.OpenAI, name: str) -> None:
    r = c.chat.completions.create(model=name, messages=MESSAGES, logprobs=True, top_logprobs=3, **GREEDY)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens and len(content[0].top_logprobs) == 3 and content[0].logprob <= 0
    t = c.completions.create(model=name, prompt="Hello", logprobs=2, **GREEDY).choices[0].logprobs
    assert len(t.tokens) == len(t.token_logprobs) == len(t.top_logprobs) == len(t.text_offset) > 0


def check_completions(c: openai.OpenAI, name: str) -> None:
    r = c.completions.create(model=name, prompt="The capital of France is", **GREEDY)
    assert r.object == "text_completion" and r.choices[0].text
    stream = c.completions.create(model=name, prompt="The capital of France is", stream=True, **GREEDY)
    assert "".join(k.choices[0].text for k in stream) == r.choices[0].text
    assert c.completions.create(model=name, prompt=[5, 6, 7], **GREEDY).usage.prompt_tokens == 3
    assert c.completions.create(model=name, prompt=["The capital of France is"], **GREEDY).choices[0].text == r.choices[0].text


def raises(kind, status: int, call) -> openai.APIStatusError:
    try:
        call()
    except kind as e:
        assert e.status_code == status and e.body["message"], e.body
        return e
    raise AssertionError(f"no {kind.__name__}")


def check_errors(c: openai.OpenAI, name: str) -> None:
    chat = c.chat.completions.create
    e = raises(openai.NotFoundError, 404, lambda: chat(model="gpt-9", messages=MESSAGES))
    assert e.code == "model_not_found" and e.param == "model" and e.type == "invalid_request_error"
    e = raises(openai.BadRequestError, 400, lambda: chat(model=name, messages=MESSAGES, response_format={"type": "json_object"}))
    assert e.param == "response_format"
    raises(openai.BadRequestError, 400, lambda: chat(model=name, messages=[]))
    raises(openai.BadRequestError, 400, lambda: chat(model=name, messages=MESSAGES, temperature=-1))
    raises(openai.BadRequestError, 400, lambda: c.embeddings.create(model=name, input="a"))
    raises(openai.AuthenticationError, 401, lambda: c.with_options(api_key="wrong").models.list())
    raises(openai.NotFoundError, 404, lambda: c.models.retrieve("nope"))
    raises(openai.NotFoundError, 404, lambda: c.files.list())


def check_cancel(c: openai.OpenAI, name: str) -> None:
    stream = c.completions.create(model=name, prompt="The", max_tokens=100000, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()


def check_many(c: openai.OpenAI, name: str) -> None:
    prompts = [f"Count from {i}:" for i in range(8)]
    ask = lambda p: c.completions.create(model=name, prompt=p, **GREEDY).choices[0].text  # noqa: E731
    expected = [ask(p) for p in prompts]
    got = [""] * len(prompts)
    threads = [threading.Thread(target=lambda i=i: got.__setitem__(i, ask(prompts[i]))) for i in range(len(prompts))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert got == expected


def main() -> int:
    checks = [f for n, f in globals().items() if n.startswith("check_")]
    with Server(sys.argv[1], model=sys.argv[2] if len(sys.argv) > 2 else None, env={"TEALIGHT_API_KEY": "key"}) as s:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{s.port}/v1", api_key="key", max_retries=0)
        return tap.run(checks, client, client.models.list().data[0].id)


if __name__ == "__main__":
    sys.exit(main())
