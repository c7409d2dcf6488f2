"""Files between the host's folder and the workspace, in a real sandbox."""

import os
from pathlib import Path

import pytest
import pytest_asyncio
from autogen_core import CancellationToken

from autogen_codeact.executors import DockerCommandLineCodeExecutor, SandboxFileError, SandboxStartError
from codeact_sandbox.types.filenames import printable
from tests.sandbox.sandboxes import block, out, run

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(sandbox_image, tmp_path_factory):
    work_dir = tmp_path_factory.mktemp("work")
    async with DockerCommandLineCodeExecutor(timeout=20, work_dir=work_dir) as started:
        yield started


class TestWorkDir:
    async def test_work_dir_is_sent_before_a_block_and_copied_back_after_it(self, executor):
        folder = executor.work_dir
        (folder / "in").mkdir()
        (folder / "in/numbers.csv").write_text("1\n2\n")
        (folder / "run.sh").write_text("#!/bin/sh\necho ran")
        (folder / "run.sh").chmod(0o755)
        code = (
            "open('sum.txt', 'w').write(str(sum(map(int, open('in/numbers.csv')))))\nimport os; os.system('./run.sh')"
        )
        result = await run(executor, code)
        assert result.output == "ran\n"
        assert [(item.name, item.size, item.media_type, item.path) for item in result.artifacts] == [
            ("sum.txt", 1, "text/plain", folder / "sum.txt")
        ]
        assert (folder / "sum.txt").read_text() == "3"
        (folder / "in/numbers.csv").write_text("5\n6\n")
        assert (await run(executor, code)).artifacts[0].name == "sum.txt"
        assert (folder / "sum.txt").read_text() == "11"

    async def test_work_dir_gets_only_what_a_block_has_changed(self, executor):
        await run(executor, "open('a.txt', 'w').write('a'); open('b.txt', 'w').write('b')")
        assert (await run(executor, "print(open('a.txt').read())")).artifacts == ()
        result = await run(executor, "open('b.txt', 'a').write('!')")
        assert [item.name for item in result.artifacts] == ["b.txt"]

    async def test_work_dir_gets_large_and_many_files(self, executor):
        code = """
            import os, pathlib
            pathlib.Path("large.bin").write_bytes(os.urandom(7) * 1_000_003)
            for n in range(300):
                path = pathlib.Path(f"many/{n % 7}/{n}.txt"); path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(str(n) * 1000)
        """
        result = await run(executor, code)
        assert len(result.artifacts) == 301
        assert all(item.path and item.note is None for item in result.artifacts)
        assert (executor.work_dir / "large.bin").stat().st_size == 7_000_021
        assert (executor.work_dir / "many/5/299.txt").read_text() == "299" * 1000

    async def test_work_dir_gets_names_of_every_kind(self, executor):
        good = ["ümläut.txt", "with space", "日本.txt", "a'b\"c", ".hidden", "é" * 127]
        bad = ["-dash", "new\nline", "back\\slash", ".codeact-part-1", "lone\udcff"]
        code = f"import os; os.makedirs('names')\nfor name in {good + bad!r}: open('names/' + name, 'w').write('x')"
        result = await run(executor, code)
        assert (result.outcome, result.error.type) == ("error", "FilesNotStored")
        stored = {item.name for item in result.artifacts if item.path}
        assert stored == {f"names/{name}" for name in good}
        refused = {item.name: item.note for item in result.artifacts if not item.path}
        assert set(refused) == {printable(f"names/{name}") for name in bad} - {"names/.codeact-part-1"}
        assert all(refused.values())

    async def test_default_work_dir_is_temporary_and_removed_at_stop(self, sandbox_image):
        async with DockerCommandLineCodeExecutor() as executor:
            result = await run(executor, "open('x.txt', 'w').write('x')")
            folder = executor.work_dir
            assert (folder / "x.txt").read_text() == "x"
            assert Path(result.code_file).parent == folder
        assert not folder.exists()


class TestCodeFiles:
    async def test_code_files_have_the_hash_or_the_requested_name(self, executor):
        result = await run(executor, "print('unnamed')")
        assert Path(result.code_file).name.startswith("tmp_code_")
        assert (executor.work_dir / Path(result.code_file).name).read_text() == "print('unnamed')"
        result = await run(executor, "# filename: sub/dir/tool.py\nprint(__file__)")
        assert result.output == "/workspace/sub/dir/tool.py\n"
        assert result.code_file == str(executor.work_dir / "sub/dir/tool.py")
        assert result.artifacts == ()
        assert (
            await out(executor, "import sys; sys.path.insert(0, 'sub/dir'); import tool")
            == "/workspace/sub/dir/tool.py\n"
        )

    async def test_delete_tmp_files_removes_unnamed_code_files_only(self, make_executor, tmp_path):
        executor = await make_executor(work_dir=tmp_path, delete_tmp_files=True)
        result = await run(executor, "print(1)")
        # As AutoGen's executors say it: the file is gone.
        assert Path(result.code_file).parent == tmp_path
        await run(executor, "echo 1", "sh")
        named = await run(executor, "# filename: kept.py\nprint(2)")
        assert named.code_file == str(tmp_path / "kept.py")
        assert os.listdir(tmp_path) == ["kept.py"]
        assert await executor.list_files() == ["kept.py"]

    async def test_unnamed_blocks_of_a_session_have_no_code_files(self, make_docker, tmp_path):
        executor = await make_docker(mode="session", work_dir=tmp_path)
        assert (await run(executor, "print(1)")).code_file is None
        assert (await run(executor, "echo 1", "sh")).code_file is None
        assert (await run(executor, "console.log(1)", "javascript")).output == "1\n"
        assert os.listdir(tmp_path) == []
        assert await executor.list_files() == []


class TestUploadAndDownload:
    async def test_upload_and_download_round_trip(self, executor, tmp_path):
        for size in (0, 1, 256 * 1024, 256 * 1024 + 1, 3_000_000):
            source = tmp_path / "source.bin"
            source.write_bytes(os.urandom(size))
            await executor.upload(source, "deep/er/file.bin")
            target = await executor.download("deep/er/file.bin", tmp_path / "back" / "target.bin")
            assert target.read_bytes() == source.read_bytes()

    async def test_an_upload_keeps_its_name_and_replaces(self, executor, tmp_path):
        source = tmp_path / "data.txt"
        for text in ("one", "two"):
            source.write_text(text)
            await executor.upload(source)
            assert await out(executor, "print(open('data.txt').read())") == text + "\n"

    async def test_upload_of_a_missing_file_is_an_error(self, executor, tmp_path):
        with pytest.raises(SandboxFileError, match=r"^\[Errno 2\] No such file or directory: '.*/nothing'$"):
            await executor.upload(tmp_path / "nothing")


class TestBindDir:
    async def test_bind_dir_is_the_workspace_itself(self, make_docker, tmp_path):
        tmp_path.chmod(0o777)
        executor = await make_docker(bind_dir=tmp_path)
        assert executor.bind_dir == executor.work_dir == tmp_path
        (tmp_path / "in.txt").write_text("in")
        result = await run(executor, "open('out.txt', 'w').write(open('in.txt').read() + ' and out')")
        assert (tmp_path / "out.txt").read_text() == "in and out"
        assert result.artifacts == ()
        assert Path(result.code_file).parent == tmp_path
        (tmp_path / "out.txt").unlink()
        assert await out(executor, "import os; print(os.path.exists('out.txt'))") == "False\n"

    async def test_bind_dir_has_its_owner_as_the_user(self, make_docker, tmp_path):
        if os.getuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(tmp_path, 12345, 23456)
        executor = await make_docker(bind_dir=tmp_path)
        await out(executor, "open('mine', 'w')")
        status = (tmp_path / "mine").stat()
        assert (status.st_uid, status.st_gid) == (12345, 23456)

    async def test_bind_dir_that_can_not_be_written_is_an_error_at_the_start(self, sandbox_image, tmp_path):
        tmp_path.chmod(0o755)
        executor = DockerCommandLineCodeExecutor(bind_dir=tmp_path, user="65534:65534")
        with pytest.raises(SandboxStartError, match="not writable for user 65534"):
            await executor.start()


class TestArtifactsOfSeveralBlocks:
    async def test_artifacts_of_several_blocks_are_reported_once_with_their_last_state(self, make_executor):
        executor = await make_executor()
        blocks = [block("open('x', 'w').write('1')"), block("open('x', 'w').write('22'); open('y', 'w')")]
        result = await executor.execute_code_blocks(blocks, CancellationToken())
        assert [(item.name, item.size) for item in result.artifacts] == [("x", 2), ("y", 0)]
