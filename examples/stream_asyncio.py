"""Several answers at once in asyncio, and one that is given up: python stream_asyncio.py [MODEL]"""

import asyncio
import sys

import adder


async def tell(model, name, prompt, seed):
    text = ""
    async for piece in model.astream(prompt, max_tokens=40, seed=seed):
        text += piece
    print(f"{name}: {prompt}{text}")


async def main(path=None):
    model = adder.load(path)
    prompts = ["She was the youngest ", "The morning after the ball ", "It is a truth "]
    await asyncio.gather(*(tell(model, f"stream {i}", p, i) for i, p in enumerate(prompts)))

    # Cancelling a task ends its work within a step.
    task = asyncio.create_task(model.agenerate(prompts[0], max_tokens=10**9, ignore_eos=True))
    await asyncio.sleep(0.2)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        print("cancelled")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
