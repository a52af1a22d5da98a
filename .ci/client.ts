// Uses the TypeScript client that .ci/clients makes: each operation on colors, and the errors as the document has them.
import { BASE_PATH, Color, ColorsApi, ResponseError, ServiceApi } from './typescript';

declare const process: { argv: string[]; exit(code: number): never };

function equal(actual: unknown, expected: unknown): void {
    const [left, right] = [JSON.stringify(actual), JSON.stringify(expected)];
    if (left !== right) throw new Error(`${left} is not ${right}`);
}

async function refusal(response: Promise<unknown>): Promise<Response> {
    try {
        await response;
    } catch (error) {
        if (error instanceof ResponseError) return error.response;
        throw error;
    }
    throw new Error('it was not refused');
}

async function main(): Promise<void> {
    const [colors, service] = [new ColorsApi(), new ServiceApi()];
    equal(BASE_PATH, process.argv[2]);

    const before = (await colors.listColors()).data;
    equal([before.length, (await service.health()).colors], [148, 148]);
    equal(before[0], { name: 'aliceblue', value: '#f0f8ff' });

    const ink: Color = { name: 'a/b ü', value: '#191970' };
    const created = await colors.createColorRaw({ colorCreate: ink });
    equal([created.raw.status, await created.value()], [201, ink]);
    equal(created.raw.headers.get('Location'), '/api/v1/colors/a%2Fb%20%C3%BC');
    equal((await colors.listColors()).data, [...before, ink]);

    const { name } = ink;
    const read = await colors.readColorRaw({ name });
    equal(await read.value(), ink);
    ink.value = '#0b0b45';
    const update = { name, ifMatch: read.raw.headers.get('ETag')!, colorUpdate: { value: ink.value } };
    equal(await colors.updateColor(update), ink);
    equal((await refusal(colors.updateColor(update))).status, 412);
    equal(await colors.updateColor({ name }), ink);
    equal(await colors.deleteColor({ name }), ink);
    const missing = await refusal(colors.readColor({ name }));
    equal([missing.status, await missing.json()], [404, { error: true }]);

    for (const head of [colors.headColorsRaw({}), service.headHealthRaw({}), service.headMetricsRaw(), service.headOpenapiRaw({})]) {
        const answer = await head;
        equal([answer.raw.status, await answer.value()], [200, undefined]);
    }
    equal((await colors.headColorRaw({ name: 'red' })).raw.headers.get('ETag'), (await colors.readColorRaw({ name: 'red' })).raw.headers.get('ETag'));
    equal((await refusal(colors.headColor({ name }))).status, 404);

    const document = await service.openapi();
    equal([document.info.title, '/colors' in document.paths], ['colors', true]);
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
